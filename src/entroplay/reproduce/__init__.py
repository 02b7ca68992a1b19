"""The paper's figures and theorems, run anew and held against what it says: `entroplay reproduce`."""
