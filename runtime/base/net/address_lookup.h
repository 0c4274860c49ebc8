#pragma once

// It takes types from the headers of the C library.
#include <netdb.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>

namespace lockstep {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

struct AddressQuery {
  std::string host;  ///< an IPv4 or IPv6 address or a name
  int port = 0;
  int type = SOCK_STREAM;
  int family = AF_UNSPEC;
};

/// One address or more. May ask a name server, which may take seconds. Throws std::system_error that begins
/// with `purpose` and names host:port.
AddressList look_up_addresses(const AddressQuery& query, const std::string& purpose);

/// The address of a host that has one alone, as a number: "10.0.0.7", "::1". Nothing where it has several or
/// cannot be looked up. May ask a name server, which may take seconds.
std::optional<std::string> single_address_of(const std::string& host, int port);

/// Such as "node7:2222" and "[::1]:2222".
std::string endpoint_text(const std::string& host, int port);

}  // namespace lockstep
