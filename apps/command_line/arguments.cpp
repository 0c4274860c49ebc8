#include "lockstep/apps/command_line/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/apps/command_line/closest_name.h"
#include "lockstep/apps/command_line/cxxopts_flags.h"
#include "lockstep/apps/command_line/usage_error.h"

namespace lockstep::apps {
namespace {

bool takes_value(const FlagTable& table, const std::string& argument) {
  return std::any_of(table.flags.begin(), table.flags.end(), [&](const Flag& flag) {
    return !flag.value.empty() && "--" + long_name(flag) == argument;
  });
}

/// Throws UsageError for a flag without its value, or in the place of another's.
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

/// Throws UsageError for an argument that is no flag of the program's, but looks like one.
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

int64_t Arguments::integer(const std::string& flag, const IntegerRange& range, int64_t otherwise) const {
  return has(flag) ? parse_integer("--" + flag, text(flag), range) : otherwise;
}

double Arguments::positive(const std::string& flag, double otherwise) const {
  return has(flag) ? parse_positive("--" + flag, text(flag)) : otherwise;
}

double Arguments::fraction(const std::string& flag, double otherwise) const {
  return has(flag) ? parse_fraction("--" + flag, text(flag)) : otherwise;
}

uint64_t Arguments::seed(const std::string& flag, uint64_t otherwise) const {
  return has(flag) ? parse_seed("--" + flag, text(flag)) : otherwise;
}

std::string Arguments::name(const std::string& flag, const std::vector<std::string>& names,
                            const std::string& otherwise) const {
  if (!has(flag)) return otherwise;
  const std::string& given = text(flag);
  if (std::find(names.begin(), names.end(), given) != names.end()) return given;
  throw UsageError(fmt::format("--{}: expected {}, but got '{}'{}", flag, fmt::join(names, ", "), given,
                               did_you_mean(given, names)));
}

std::vector<std::string> Arguments::list(const std::string& flag) const {
  if (!has(flag)) return {};
  std::vector<std::string> pieces(1);
  for (const char c : text(flag)) {
    if (c == ',') {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

void Arguments::forbid(const std::string& flag, const std::string& other) const {
  if (!has(flag) || !has(other)) return;
  throw UsageError(
      fmt::format("--{} {}: expected one of --{} and --{}, but got both", flag, text(flag), flag, other));
}

void Arguments::refuse(const std::string& flag, const std::string& expected) const {
  throw UsageError(fmt::format("--{}: expected {}, but got '{}'", flag, expected, text(flag)));
}

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
      given.texts_[name] = !flag.value.empty()       ? result[name].as<std::string>()
                           : result[name].as<bool>() ? "true"
                                                     : "false";
    }
  } catch (const cxxopts::exceptions::exception& error) {
    throw UsageError(error.what());
  }
  const bool only_prints = given.is_on("help") || given.is_on("version");
  if (!only_prints) check_operands(table, given.operands_);
  return given;
}

}  // namespace lockstep::apps
