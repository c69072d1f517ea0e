"""The admin API's routes, a module per noun."""
