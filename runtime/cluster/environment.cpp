#include "lockstep/runtime/cluster/environment.h"

#include <charconv>
#include <cstdlib>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

constexpr char kMasterAddress[] = "MASTER_ADDR";
constexpr char kMasterPort[] = "MASTER_PORT";

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value =
        std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

LauncherVariables::LauncherVariables(Environment environment, std::string launcher)
    : environment_(std::move(environment)), launcher_(std::move(launcher)) {}

std::string LauncherVariables::text(const std::string& name) const {
  auto value = environment_(name);
  if (!value) refuse(name, "set");
  return std::move(*value);
}

std::optional<int> LauncherVariables::find_integer(const std::string& name,
                                                   const VariableRange& range) const {
  const auto text = environment_(name);
  if (!text) return std::nullopt;
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [rest, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || rest != end || value < range.least || value > range.most) {
    refuse(name, range.most == INT_MAX ? "a whole number of " + std::to_string(range.least) + " or more"
                                       : "a whole number from " + std::to_string(range.least) + " to " +
                                             std::to_string(range.most));
  }
  return value;
}

int LauncherVariables::integer(const std::string& name, const VariableRange& range) const {
  const auto value = find_integer(name, range);
  if (!value) refuse(name, "a whole number");
  return *value;
}

std::optional<HostPort> LauncherVariables::find_master(const std::string& prefix) const {
  if (!has(prefix + kMasterAddress) && !has(prefix + kMasterPort)) return std::nullopt;
  return master(prefix);
}

HostPort LauncherVariables::master(const std::string& prefix) const {
  constexpr VariableRange kPorts{.least = 1, .most = 65535};
  const std::string address = prefix + kMasterAddress;
  return {.host = parse_host(text(address), {.source = launcher_, .name = address}),
          .port = integer(prefix + kMasterPort, kPorts)};
}

void LauncherVariables::refuse(const std::string& name, const std::string& expected) const {
  const auto value = environment_(name);
  if (value) refuse_value({.source = launcher_, .name = name}, expected, quoted_excerpt(*value));
  throw InvalidArgument("[" + launcher_ + "] expected " + name + " to be " + expected +
                        ", but it is not set");
}

}  // namespace lockstep
