#include "lockstep/apps/shared/command_line/setting_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>

namespace lockstep::apps {

std::string setting_text(const SettingValue& value) {
  return std::visit(
      [](const auto& given) -> std::string {
        using T = std::remove_cvref_t<decltype(given)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return "";
        } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return fmt::format("{}", fmt::join(given, ","));
        } else {
          return fmt::format("{}", given);
        }
      },
      value);
}

}  // namespace lockstep::apps
