"""What the machine gives: devices, processes, threads, memory, files that are whole or absent,
progress.
"""
