"""Between the torch dialect and the programs that rules are about: reading, and writing what rules made of one."""
