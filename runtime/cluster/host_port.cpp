#include "lockstep/runtime/cluster/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

constexpr std::string_view kDecimalDigits = "0123456789";

bool is_letter_or_digit(char character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
         (character >= '0' && character <= '9');
}

bool is_ipv4_address(std::string_view text) {
  in_addr address{};
  return inet_pton(AF_INET, std::string(text).c_str(), &address) == 1;
}

/// The canonical form, or nothing if `text` is not an IPv6 address. A zone (%eth0) is kept.
std::optional<std::string> canonical_ipv6_address(std::string_view text) {
  const size_t percent = std::min(text.find('%'), text.size());
  const std::string_view zone = text.substr(percent);
  const bool zone_is_good = zone.size() != 1 && std::all_of(zone.begin(), zone.end(), [](char character) {
                              return is_letter_or_digit(character) ||
                                     std::string_view("%._-").find(character) != std::string_view::npos;
                            });
  in6_addr address{};
  const std::string number(text.substr(0, percent));
  if (!zone_is_good || inet_pton(AF_INET6, number.c_str(), &address) != 1) return std::nullopt;
  std::array<char, INET6_ADDRSTRLEN> canonical{};
  inet_ntop(AF_INET6, &address, canonical.data(), canonical.size());
  return canonical.data() + std::string(zone);
}

/// DNS host names have no underscores, but container names may.
bool is_host_name(std::string_view text) {
  constexpr size_t kMaxName = 253;
  constexpr size_t kMaxLabel = 63;
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > kMaxName) return false;
  while (true) {
    const size_t dot = text.find('.');
    const std::string_view label = text.substr(0, dot);
    const bool is_label = !label.empty() && label.size() <= kMaxLabel && label.front() != '-' &&
                          label.back() != '-' && std::all_of(label.begin(), label.end(), [](char character) {
                            return is_letter_or_digit(character) || character == '-' || character == '_';
                          });
    if (!is_label) return false;
    if (dot == std::string_view::npos) return true;
    text.remove_prefix(dot + 1);
  }
}

/// A host, or else what was expected.
struct HostReading {
  std::optional<std::string> host;
  std::string expected;
};

HostReading read_bracketed(std::string_view inside) {
  auto address = canonical_ipv6_address(inside);
  if (address) return {.host = std::move(address), .expected = ""};
  return {.host = std::nullopt, .expected = "an IPv6 address in the brackets"};
}

HostReading read_name_or_ipv4(std::string_view text) {
  // No name consists of digits and dots only: resolvers would take it for a short form of an address.
  if (text.find_first_of(kDecimalDigits) != std::string_view::npos &&
      text.find_first_not_of("0123456789.") == std::string_view::npos) {
    if (is_ipv4_address(text)) return {.host = std::string(text), .expected = ""};
    return {.host = std::nullopt, .expected = "four numbers from 0 to 255 as IPv4 address"};
  }
  if (!is_host_name(text)) return {.host = std::nullopt, .expected = "a name or an address as host"};
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), [](char character) {
    return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a') : character;
  });
  return {.host = std::move(name), .expected = ""};
}

std::optional<int> read_port(std::string_view text) {
  constexpr size_t kMaxDigits = 5;
  constexpr int kMaxPort = 65535;
  if (text.empty() || text.size() > kMaxDigits) return std::nullopt;
  if (text.find_first_not_of(kDecimalDigits) != std::string_view::npos) return std::nullopt;
  int port = 0;
  std::from_chars(text.data(), text.data() + text.size(), port);
  if (port < 1 || port > kMaxPort) return std::nullopt;
  return port;
}

}  // namespace

std::string HostPort::str() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool HostPort::operator<(const HostPort& other) const {
  return std::tie(host, port) < std::tie(other.host, other.port);
}

HostPort parse_host_port(std::string_view text) {
  return parse_host_port(text, {.source = "HostPort", .name = "the address"});
}

HostPort parse_host_port(std::string_view text, const ConfigurationValue& value) {
  const auto refuse = [&](const std::string& detail) {
    refuse_value(value, "host:port with " + detail, quoted_excerpt(text));
  };
  const bool has_brackets = text.starts_with('[');
  const size_t host_end = has_brackets ? text.find(']') : text.rfind(':');
  if (has_brackets && host_end == std::string_view::npos) refuse("a closing bracket");
  const size_t colon = has_brackets ? host_end + 1 : host_end;
  if (colon == std::string_view::npos || colon >= text.size() || text[colon] != ':') refuse("a port");

  const std::string_view host = has_brackets ? text.substr(1, host_end - 1) : text.substr(0, host_end);
  if (!has_brackets && (canonical_ipv6_address(text) || canonical_ipv6_address(host))) {
    refuse("an IPv6 address in brackets, such as [::1]:8888");
  }
  HostReading reading = has_brackets ? read_bracketed(host) : read_name_or_ipv4(host);
  if (!reading.host) refuse(reading.expected);
  const auto port = read_port(text.substr(colon + 1));
  if (!port) refuse("a port from 1 to 65535");
  return {.host = std::move(*reading.host), .port = *port};
}

std::string parse_host(std::string_view text, const ConfigurationValue& value) {
  if (auto address = canonical_ipv6_address(text)) return std::move(*address);
  const bool has_brackets = text.size() >= 2 && text.starts_with('[') && text.ends_with(']');
  HostReading reading =
      has_brackets ? read_bracketed(text.substr(1, text.size() - 2)) : read_name_or_ipv4(text);
  if (!reading.host) refuse_value(value, reading.expected, quoted_excerpt(text));
  return std::move(*reading.host);
}

}  // namespace lockstep
