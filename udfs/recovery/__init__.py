"""After damage: where the log goes on."""
