"""The networks of the families as torch modules. Importing one of these modules imports torch."""
