"""Speed, as ratios between systems that serve the same work in the same run. Not part of the package."""
