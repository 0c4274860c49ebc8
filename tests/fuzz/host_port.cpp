#include "lockstep/runtime/cluster/host_port.h"

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = text_of(data, size);
  const ConfigurationValue value{.source = "fuzz", .name = "the address"};
  const auto address =
      accepted<InvalidArgument>([&] { return parse_host_port(text, value); }, expect_plain_line);
  if (address) {
    expect(address->port >= 1 && address->port <= 65535, "a port");
    expect(parse_host_port(address->str()) == *address, "the same address out of what was written of it");
  }
  const auto host = accepted<InvalidArgument>([&] { return parse_host(text, value); }, expect_plain_line);
  if (host) {
    expect(parse_host(*host, value) == *host, "the same host out of what was written of it");
    const HostPort with_port{.host = *host, .port = 1};
    expect(parse_host_port(with_port.str()) == with_port, "a host that an address may have");
  }
  return 0;
}

}  // namespace lockstep::fuzz
