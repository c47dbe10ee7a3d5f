"""Option files of the configuration groups; `hydra.initialize_config_module("attnlab.conf")` reads them."""
