#pragma once

#include <climits>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/runtime/cluster/host_port.h"

namespace lockstep {

/// Looks up an environment variable. Returns nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Returns a lookup of this process's variables. Do not call it while another thread sets variables.
Environment process_environment();

/// Range of whole numbers that a variable accepts.
struct VariableRange {
  int least = 0;
  int most = INT_MAX;
};

/// Reads the variables that a launcher sets for its processes. All errors are InvalidArgument and name the
/// launcher, the variable and its value.
///
/// Example:
///
///     const LauncherVariables variables(process_environment(), "my launcher");
///     const int size = variables.integer("MY_SIZE", {.least = 1});
///     const int rank = variables.integer("MY_RANK", {.most = size - 1});
class LauncherVariables {
 public:
  LauncherVariables(Environment environment, std::string launcher);

  bool has(const std::string& name) const { return environment_(name).has_value(); }

  std::optional<std::string> find_text(const std::string& name) const { return environment_(name); }

  /// Throws if the variable is not set.
  std::string text(const std::string& name) const;

  /// Throws unless the value consists of decimal digits that spell a number within `range`.
  std::optional<int> find_integer(const std::string& name, const VariableRange& range) const;

  /// The same, but throws if the variable is not set.
  int integer(const std::string& name, const VariableRange& range) const;

  /// Returns the address of rank 0 from MASTER_ADDR and MASTER_PORT, or from these names with a prefix such
  /// as PET_. Returns nothing if neither is set; throws if only one is.
  std::optional<HostPort> find_master(const std::string& prefix = "") const;

  /// The same, but throws if the variables are not set.
  HostPort master(const std::string& prefix = "") const;

  /// Throws the error for a variable that should have been `expected`.
  [[noreturn]] void refuse(const std::string& name, const std::string& expected) const;

 private:
  Environment environment_;
  std::string launcher_;
};

}  // namespace lockstep
