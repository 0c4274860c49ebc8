#include "lockstep/apps/shared/command_line/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/apps/shared/command_line/cxxopts_flags.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/internal/closest_name.h"

namespace lockstep::apps {
namespace {

bool takes_value(const FlagTable& table, const std::string& argument) {
  return std::any_of(table.flags.begin(), table.flags.end(), [&](const Flag& flag) {
    return !flag.value.empty() && "--" + long_name(flag) == argument;
  });
}

/// Throws UsageError if a flag lacks its value or has another flag in its place.
void check_values(const FlagTable& table, const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!takes_value(table, arguments[i])) continue;
    if (i + 1 == arguments.size()) throw UsageError(arguments[i] + ": expected a value, but got none");
    if (arguments[i + 1].starts_with("--")) {
      throw UsageError(
          fmt::format("{}: expected a value, but got the flag {}", arguments[i], arguments[i + 1]));
    }
    ++i;
  }
}

/// Throws UsageError if an argument looks like a flag, but is not one of the program's.
void check_flag(const FlagTable& table, const std::string& argument) {
  if (argument.size() < 2 || argument[0] != '-') return;
  const std::string flag = argument.substr(0, argument.find('='));
  throw UsageError(fmt::format("{}: expected a flag of this program{}; --help lists them", flag,
                               did_you_mean(flag, flag_spellings(table))));
}

void check_operands(const FlagTable& table, const std::vector<std::string>& operands) {
  if (operands.size() > table.operands.size()) {
    const std::string& argument = operands[table.operands.size()];
    if (table.operands.empty())
      throw UsageError(fmt::format("'{}': expected a flag; --help lists them", argument));
    throw UsageError(fmt::format("'{}': expected only {} without a flag; --help lists the flags", argument,
                                 fmt::join(table.operands, ", ")));
  }
  if (operands.size() < table.operands.size())
    throw UsageError(fmt::format("expected {}, but got none; see --help", table.operands[operands.size()]));
}

}  // namespace

Arguments parse_arguments(const FlagTable& table, const std::vector<std::string>& arguments) {
  check_values(table, arguments);
  std::vector<const char*> argv{table.program.c_str()};
  for (const auto& argument : arguments) argv.push_back(argument.c_str());
  auto options = cxxopts_flags(table);
  options.allow_unrecognised_options();
  Arguments given;
  try {
    const cxxopts::ParseResult result = options.parse(static_cast<int>(argv.size()), argv.data());
    for (const auto& argument : result.unmatched()) check_flag(table, argument);
    given.operands_ = result.unmatched();
    for (const auto& flag : table.flags) {
      const std::string name = long_name(flag);
      if (result.count(name) == 0) continue;
      const std::string text = !flag.value.empty()       ? result[name].as<std::string>()
                               : result[name].as<bool>() ? "true"
                                                         : "false";
      given.given_[name] = {.text = text, .origin = {.kind = OriginKind::kFlag, .name = ""}};
    }
  } catch (const cxxopts::exceptions::exception& error) {
    throw UsageError(error.what());
  }
  const bool only_prints = given.is_on("help") || given.is_on("version");
  if (!only_prints) check_operands(table, given.operands_);
  return given;
}

}  // namespace lockstep::apps
