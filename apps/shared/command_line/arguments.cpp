#include "lockstep/apps/shared/command_line/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/internal/closest_name.h"

namespace lockstep::apps {
namespace {

/// Returns whether files cannot give one of the flags that another needs.
bool files_lack(const FlagNeed& need, const FlagTable& table) {
  return std::any_of(need.others.begin(), need.others.end(), [&](const std::string& other) {
    const Flag* flag = find_flag(table, other);
    return flag != nullptr && !is_read_from_files(*flag);
  });
}

}  // namespace

int64_t Arguments::integer(const std::string& flag, const IntegerRange& range, int64_t otherwise) const {
  return has(flag) ? parse_integer(spelling(flag), text(flag), range) : otherwise;
}

double Arguments::positive(const std::string& flag, double otherwise) const {
  return has(flag) ? parse_positive(spelling(flag), text(flag)) : otherwise;
}

double Arguments::fraction(const std::string& flag, double otherwise) const {
  return has(flag) ? parse_fraction(spelling(flag), text(flag)) : otherwise;
}

double Arguments::factor(const std::string& flag, double otherwise) const {
  return has(flag) ? parse_factor(spelling(flag), text(flag)) : otherwise;
}

double Arguments::amount(const std::string& flag, double otherwise) const {
  return has(flag) ? parse_amount(spelling(flag), text(flag)) : otherwise;
}

uint64_t Arguments::seed(const std::string& flag, uint64_t otherwise) const {
  return has(flag) ? parse_seed(spelling(flag), text(flag)) : otherwise;
}

std::string Arguments::name(const std::string& flag, const std::vector<std::string>& names,
                            const std::string& otherwise) const {
  if (!has(flag)) return otherwise;
  const std::string& given = text(flag);
  if (std::find(names.begin(), names.end(), given) != names.end()) return given;
  throw UsageError(fmt::format("{}: expected {}, but got '{}'{}", spelling(flag), fmt::join(names, ", "),
                               given, did_you_mean(given, names)));
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

std::string Arguments::spelling(const std::string& flag) const {
  const Origin origin = this->origin(flag);
  return origin.kind == OriginKind::kFile ? fmt::format("{}: values.{}", origin.name, flag) : "--" + flag;
}

void Arguments::refuse(const std::string& flag, const std::string& expected) const {
  throw UsageError(fmt::format("{}: expected {}, but got '{}'", spelling(flag), expected, text(flag)));
}

void Arguments::refuse_together(const std::string& flag, const std::string& reason) const {
  const bool is_switch = text(flag) == "true";
  throw UsageError(fmt::format("{}{}: {}", spelling(flag), is_switch ? "" : " " + text(flag), reason));
}

Origin Arguments::origin(const std::string& flag) const {
  return has(flag) ? given_.at(flag).origin : Origin{};
}

std::map<std::string, Origin> Arguments::origins() const {
  std::map<std::string, Origin> origins;
  for (const auto& [flag, given] : given_) origins[flag] = given.origin;
  return origins;
}

void Arguments::add(const ConfigurationFile& file, const FlagTable& table) {
  auto texts = file.texts;
  for (const auto& [flag, other] : table.alternatives) {
    if (has(flag)) texts.erase(other);
    if (has(other)) texts.erase(flag);
  }
  for (const auto& [flag, other] : table.dependents) {
    const auto its = file.texts.find(other);
    if (has(other) && its != file.texts.end() && text(other) != its->second) texts.erase(flag);
  }
  for (const auto& [flag, text] : texts) {
    given_.emplace(flag, Given{.text = text, .origin = {.kind = OriginKind::kFile, .name = file.path}});
  }
  for (const auto& need : table.needs) {
    if (origin(need.flag).kind != OriginKind::kFile || !lacks_others(need)) continue;
    const bool had_one = std::any_of(need.others.begin(), need.others.end(),
                                     [&](const std::string& other) { return file.texts.contains(other); });
    if (had_one || files_lack(need, table)) given_.erase(need.flag);
  }
}

bool Arguments::lacks_others(const FlagNeed& need) const {
  return std::none_of(need.others.begin(), need.others.end(),
                      [&](const std::string& other) { return has(other); });
}

void Arguments::check_needs(const FlagTable& table) const {
  for (const auto& need : table.needs) {
    if (!has(need.flag) || text(need.flag) == "false" || !lacks_others(need)) continue;
    refuse_together(need.flag, fmt::format("expected --{} with it", fmt::join(need.others, " or --")));
  }
}

void Arguments::check_alternatives(const FlagTable& table) const {
  for (const auto& [flag, other] : table.alternatives) {
    if (!has(flag) || !has(other)) continue;
    refuse_together(flag, fmt::format("expected one of --{} and --{}, but got both", flag, other));
  }
}

}  // namespace lockstep::apps
