#include "lockstep/runtime/exchange/socket_link.h"

#include <gtest/gtest.h>
// C library headers, for their types.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/base/net/tcp_listener.h"

namespace lockstep {
namespace {

int option_of(const ExchangeLink& link, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(getsockopt(link.descriptor(), level, option, &value, &size), 0);
  return value;
}

// The system would close a connection to a rank that is alive, but busy for longer than a minute.
TEST(SocketLink, HasNoLimitForAPeerThatDoesNotReceive) {
  TcpListener listener("127.0.0.1", 0);
  ASSERT_EQ(listen(listener.descriptor(), 1), 0);
  auto calling = StreamSocket::connect("127.0.0.1", listener.port(), StreamSocket::kNoDeadline);
  const SocketLink caller(calling.release());
  const SocketLink called(accept(listener.descriptor(), nullptr, nullptr));
  for (const auto* link : {&caller, &called}) {
    EXPECT_EQ(option_of(*link, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
    EXPECT_EQ(option_of(*link, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option_of(*link, IPPROTO_TCP, TCP_NODELAY), 1);
  }
}

}  // namespace
}  // namespace lockstep
