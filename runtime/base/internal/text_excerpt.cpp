#include "lockstep/runtime/base/internal/text_excerpt.h"

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

std::string excerpt(std::string_view text) {
  constexpr size_t kMaxLength = 80;
  constexpr std::string_view kCut = "...";
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  size_t whole = 0;  // length of the part that fits together with the mark
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte >= 0x20 && byte < 0x7F) {
      out += character;
    } else {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
    if (out.size() > kMaxLength) {
      out.resize(whole);
      out += kCut;
      return out;
    }
    if (out.size() <= kMaxLength - kCut.size()) whole = out.size();
  }
  return out;
}

std::string quoted_excerpt(std::string_view text) {
  return "'" + excerpt(text) + "'";
}

void refuse_value(const ConfigurationValue& value, const std::string& expected, const std::string& given) {
  throw InvalidArgument("[" + value.source + "] expected " + value.name + " to be " + expected +
                        ", but got " + given);
}

}  // namespace lockstep
