#pragma once

#include <string>

namespace lockstep::apps {

/// The source of a value. Later ones override earlier ones.
enum class OriginKind { kDefault, kEnvironment, kFile, kFlag };

/// The origin of a value in a program's configuration.
struct Origin {
  OriginKind kind = OriginKind::kDefault;
  std::string name;  ///< environment variable or file; empty for the other kinds

  bool operator==(const Origin&) const = default;
};

/// Returns the name used in configuration files: default, environment, file, flag.
std::string origin_name(OriginKind kind);

}  // namespace lockstep::apps
