"""What changed between two compilations: of an edited model, with other options, by another compiler."""
