#pragma once

// C library headers, for their types.
#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>

namespace lockstep {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

struct AddressQuery {
  std::string host;  ///< IPv4 address, IPv6 address or name
  int port = 0;
  int type = SOCK_STREAM;
  int family = AF_UNSPEC;
};

/// Returns one or more addresses. May ask a name server, which can take seconds. Throws std::system_error
/// whose message begins with `purpose` and names host:port.
AddressList look_up_addresses(const AddressQuery& query, const std::string& purpose);

/// Returns the numeric address of a host that has only one, such as "10.0.0.7" or "::1"; nullopt if it has
/// several or the lookup fails. May ask a name server, which can take seconds.
std::optional<std::string> single_address_of(const std::string& host, int port);

/// Returns host and port as text, such as "node7:2222" or "[::1]:2222".
std::string endpoint_text(const std::string& host, int port);

}  // namespace lockstep
