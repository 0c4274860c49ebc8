#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

/// Removes `count` bytes from the front of the parts, along with empty parts there.
template <typename Byte>
void drop_front(std::span<std::span<Byte>>& parts, size_t count) {
  while (!parts.empty() && count >= parts.front().size()) {
    count -= parts.front().size();
    parts = parts.subspan(1);
  }
  if (!parts.empty()) parts.front() = parts.front().subspan(count);
}

}  // namespace lockstep
