"""Payloads: conversion, encryption, and large values outside Temporal.

Start reading at `converter` (what travels), then `blobs` and `backends` (where it is kept).
"""
