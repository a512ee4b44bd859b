"""Static analysis of shell commands: which simple commands a text runs, and which paths outside the project it touches.

Begin at `analysis.py`.
"""
