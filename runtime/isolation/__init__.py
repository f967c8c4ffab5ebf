"""Programs in processes of their own: what crashes, hangs or fills the memory there harms nobody here."""
