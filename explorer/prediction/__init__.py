"""How long a block would take: roofline over the ledger's rows and launch cost, calibrated or named an estimate."""
