#pragma once

#include <climits>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/runtime/cluster/host_port.h"

namespace lockstep {

/// Looks up an environment variable; nothing where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The variables of this process. Not to be called while another thread sets variables.
Environment process_environment();

/// The whole numbers that a variable takes.
struct VariableRange {
  int least = 0;
  int most = INT_MAX;
};

/// The variables that a launcher sets for its processes. Every error is an InvalidArgument that names the
/// launcher, the variable and its value.
class LauncherVariables {
 public:
  LauncherVariables(Environment environment, std::string launcher);

  bool has(const std::string& name) const { return environment_(name).has_value(); }

  std::optional<std::string> find_text(const std::string& name) const { return environment_(name); }

  /// Throws where it is not set.
  std::string text(const std::string& name) const;

  /// Throws for anything but decimal digits that spell a number within `range`.
  std::optional<int> find_integer(const std::string& name, const VariableRange& range) const;

  /// The same; throws where it is not set.
  int integer(const std::string& name, const VariableRange& range) const;

  /// MASTER_ADDR and MASTER_PORT, which name where rank 0 listens, or the two with a prefix such as PET_.
  /// Nothing where neither is set; throws where only one is.
  std::optional<HostPort> find_master(const std::string& prefix = "") const;

  /// The same; throws where it is not set.
  HostPort master(const std::string& prefix = "") const;

  [[noreturn]] void refuse(const std::string& name, const std::string& expected) const;

 private:
  Environment environment_;
  std::string launcher_;
};

}  // namespace lockstep
