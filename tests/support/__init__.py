"""What tests share: builders of objects, worlds that assemble the product, virtual time, and what lies outside."""
