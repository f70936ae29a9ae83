"""Commands that change a store: tags, notes, removal, imports; shell completion."""
