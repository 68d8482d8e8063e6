"""Checkpoint savers for LangGraph."""
