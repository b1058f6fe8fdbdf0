"""One pass over any module as rows: a kernel each, with its products, element-wise ops and bytes."""
