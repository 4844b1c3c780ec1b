echo refund
