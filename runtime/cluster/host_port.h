#pragma once

#include <string>
#include <string_view>

namespace lockstep {

struct ConfigurationValue;

/// Where a task of a cluster listens.
struct HostPort {
  std::string host;  ///< a name, an IPv4 address, or an IPv6 address without brackets
  int port = 0;      ///< 1 to 65535

  /// host:port, an IPv6 address in brackets.
  std::string str() const;

  bool operator==(const HostPort&) const = default;
  bool operator<(const HostPort& other) const;
};

/// Reads "host:port", where host is a name, an IPv4 address or an IPv6 address in brackets. Names come back
/// in lower case and IPv6 addresses in their canonical form, so that equal addresses compare equal. Resolves
/// no name and does not block. Throws InvalidArgument saying what is wrong with `text`.
HostPort parse_host_port(std::string_view text);

/// The same; the error says which value of a configuration it is.
HostPort parse_host_port(std::string_view text, const ConfigurationValue& value);

/// The host alone: a name or an address, the brackets of IPv6 being optional. Otherwise as parse_host_port().
std::string parse_host(std::string_view text, const ConfigurationValue& value);

}  // namespace lockstep
