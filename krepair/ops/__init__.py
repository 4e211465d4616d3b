"""One module per verb, typed in and typed out; nothing here prints."""
