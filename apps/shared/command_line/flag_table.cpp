#include "lockstep/apps/shared/command_line/flag_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "lockstep/apps/shared/command_line/cxxopts_flags.h"

namespace lockstep::apps {

cxxopts::Options cxxopts_flags(const FlagTable& table) {
  cxxopts::Options options(table.program, table.summary);
  for (const auto& flag : table.flags) {
    auto value = flag.value.empty() ? std::static_pointer_cast<cxxopts::Value>(cxxopts::value<bool>())
                                    : std::static_pointer_cast<cxxopts::Value>(cxxopts::value<std::string>());
    if (!flag.otherwise.empty()) value = value->default_value(flag.otherwise);
    options.add_option(flag.group, cxxopts::Option(flag.name, flag.text, value, flag.value));
  }
  return options;
}

std::vector<Flag> common_flags() {
  return {{"Other", "h,help", "", "Print this help, and exit", "", FlagRole::kAction},
          {"Other", "version", "", "Print the versions of Lockstep and LibTorch, and exit", "",
           FlagRole::kAction}};
}

namespace {

std::string path_hint(const std::string& program) {
  const auto path = std::filesystem::path(program);
  if (!path.has_parent_path()) return "";
  std::error_code failed;
  const auto folder = std::filesystem::canonical(path.parent_path(), failed);
  if (failed) return "";
  return fmt::format(
      "\nThe examples call the programs by name. For that, put their folder into PATH:\n"
      "  export PATH=\"{}:$PATH\"\n",
      folder.string());
}

}  // namespace

std::string long_name(const Flag& flag) {
  const size_t comma = flag.name.find(',');
  return comma == std::string::npos ? flag.name : flag.name.substr(comma + 1);
}

std::vector<std::string> flag_spellings(const FlagTable& table) {
  std::vector<std::string> spellings;
  for (const auto& flag : table.flags) {
    if (!flag.group.empty()) spellings.push_back("--" + long_name(flag));
  }
  return spellings;
}

const Flag* find_flag(const FlagTable& table, const std::string& name) {
  const auto found = std::find_if(table.flags.begin(), table.flags.end(),
                                  [&](const Flag& flag) { return long_name(flag) == name; });
  return found == table.flags.end() ? nullptr : &*found;
}

std::string help_text(const FlagTable& table, const std::string& program) {
  constexpr size_t kWidth = 100;
  std::vector<std::string> groups;
  for (const auto& flag : table.flags) {
    const bool is_new = std::find(groups.begin(), groups.end(), flag.group) == groups.end();
    if (is_new && !flag.group.empty()) groups.push_back(flag.group);
  }
  auto options = cxxopts_flags(table);
  const std::string operands =
      table.operands.empty() ? "" : fmt::format("{} ", fmt::join(table.operands, " "));
  options.set_width(kWidth).custom_help(operands + "[flags]");
  return options.help(groups) + path_hint(program) + table.after;
}

}  // namespace lockstep::apps
