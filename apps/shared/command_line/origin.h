#pragma once

#include <string>

namespace lockstep::apps {

/// Who decided a value. Later ones win over earlier ones.
enum class OriginKind { kDefault, kEnvironment, kFile, kFlag };

/// Where a value of a program's configuration comes from.
struct Origin {
  OriginKind kind = OriginKind::kDefault;
  std::string name;  ///< the variable or the file; empty for the others

  bool operator==(const Origin&) const = default;
};

/// How a configuration file spells it: default, environment, file, flag.
std::string origin_name(OriginKind kind);

}  // namespace lockstep::apps
