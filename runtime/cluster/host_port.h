#pragma once

#include <string>
#include <string_view>

namespace lockstep {

struct ConfigurationValue;

/// Address at which a task of a cluster listens.
struct HostPort {
  /// A name, an IPv4 address, or an IPv6 address without brackets.
  std::string host;
  int port = 0;  ///< 1 to 65535.

  /// Returns host:port, with brackets around an IPv6 address.
  std::string str() const;

  bool operator==(const HostPort&) const = default;
  bool operator<(const HostPort& other) const;
};

/// Parses "host:port", where host is a name, an IPv4 address, or an IPv6 address in brackets. It returns
/// names in lower case and IPv6 addresses in canonical form, so that equal addresses compare equal. It does
/// not resolve names and does not block. Throws InvalidArgument saying what is wrong with `text`.
HostPort parse_host_port(std::string_view text);

/// The same; the error names the configuration value.
HostPort parse_host_port(std::string_view text, const ConfigurationValue& value);

/// Parses a host without a port: a name or an address, with optional brackets around IPv6. Otherwise like
/// parse_host_port().
std::string parse_host(std::string_view text, const ConfigurationValue& value);

}  // namespace lockstep
