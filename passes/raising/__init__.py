"""From linalg to chains of reductions: the analysis behind ``fred-raise``."""
