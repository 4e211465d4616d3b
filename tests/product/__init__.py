"""The product of the dimensions: histories x damages x sets of fixes x ways to keep x versions, through all verbs."""
