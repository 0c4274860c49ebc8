#include "lockstep/runtime/base/net/address_lookup.h"

#include <array>
#include <cerrno>
#include <system_error>

namespace lockstep {
namespace {

/// Errors of getaddrinfo(), which differ from those of errno.
class AddressErrorCategory : public std::error_category {
 public:
  const char* name() const noexcept override { return "getaddrinfo"; }
  std::string message(int code) const override { return gai_strerror(code); }
};

}  // namespace

AddressList look_up_addresses(const AddressQuery& query, const std::string& purpose) {
  addrinfo hints{};
  hints.ai_family = query.family;
  hints.ai_socktype = query.type;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(query.host.c_str(), std::to_string(query.port).c_str(), &hints, &found);
  if (code != 0) {
    static const AddressErrorCategory category;
    const std::error_code error =
        code == EAI_SYSTEM ? std::error_code(errno, std::system_category()) : std::error_code(code, category);
    throw std::system_error(error, purpose + " " + endpoint_text(query.host, query.port));
  }
  return {found, &freeaddrinfo};
}

std::optional<std::string> single_address_of(const std::string& host, int port) {
  try {
    const auto found = look_up_addresses({.host = host, .port = port}, "look up");
    std::array<char, NI_MAXHOST> text{};
    if (found->ai_next || getnameinfo(found->ai_addr, found->ai_addrlen, text.data(), text.size(), nullptr, 0,
                                      NI_NUMERICHOST) != 0)
      return std::nullopt;
    return text.data();
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

std::string endpoint_text(const std::string& host, int port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

}  // namespace lockstep
