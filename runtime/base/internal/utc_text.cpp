#include "lockstep/runtime/base/internal/utc_text.h"

#include <array>
#include <ctime>

namespace lockstep {

std::string utc_text(std::chrono::system_clock::time_point time, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &parts)};
}

}  // namespace lockstep
