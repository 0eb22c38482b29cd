"""Storms: many processes, killed, stopped and interrupted at random, with full accounting."""
