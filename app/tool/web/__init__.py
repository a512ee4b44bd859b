"""What fetching a page needs: which addresses may be reached, HTML as text."""
