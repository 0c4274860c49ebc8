#include "lockstep/datasets/clicks/internal/quoted_field.h"

namespace lockstep {

std::string quoted_field(std::string_view field) {
  constexpr size_t kMost = 24;
  std::string text = "'";
  for (const char c : field.substr(0, kMost)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (field.size() > kMost ? "...'" : "'");
}

}  // namespace lockstep
