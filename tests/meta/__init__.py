"""The project about itself: documentation, help texts, layers, light starts."""
