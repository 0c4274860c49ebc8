#include "lockstep/tests/runtime/exchange/exchange_world.h"

// C library headers, for their types.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/tls_session.h"
#include "lockstep/runtime/exchange/secure_link.h"
#include "lockstep/runtime/exchange/shared_memory_link.h"
#include "lockstep/runtime/exchange/socket_link.h"

namespace lockstep {
namespace {

/// Shakes hands in this thread: ranks connect in any order, and would wait for each other.
std::array<std::unique_ptr<ExchangeLink>, 2> encrypted_links(int low, int high) {
  const auto token = JobToken::random();
  auto server = std::make_unique<TlsSession>(low, token, [](const ChannelIdentity&) { return true; });
  auto client = std::make_unique<TlsSession>(high, token, ChannelIdentity{.purpose = "exchange"});
  bool is_served = false;
  bool is_met = false;
  while (!is_served || !is_met) {
    is_met = is_met || client->shake_hands();
    is_served = is_served || server->shake_hands();
  }
  return {std::make_unique<SecureLink>(Descriptor(low), std::move(server)),
          std::make_unique<SecureLink>(Descriptor(high), std::move(client))};
}

}  // namespace

ExchangeWorld::ExchangeWorld(int size, Options options)
    : options_(options),
      sockets_(static_cast<size_t>(size), std::vector<int>(static_cast<size_t>(size), -1)) {
  for (size_t a = 0; a < sockets_.size(); ++a) {
    for (size_t b = a + 1; b < sockets_.size(); ++b) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        throw std::system_error(errno, std::generic_category(), "socketpair");
      if (options_.transport == TestTransport::kEncrypted) {
        auto [low, high] = encrypted_links(ends[0], ends[1]);
        encrypted_[{static_cast<int>(a), static_cast<int>(b)}] = std::move(low);
        encrypted_[{static_cast<int>(b), static_cast<int>(a)}] = std::move(high);
        continue;
      }
      sockets_[a][b] = ends[0];
      sockets_[b][a] = ends[1];
    }
  }
  for (int rank = 0; rank < size; ++rank) {
    engines_.push_back(std::make_unique<ExchangeEngine>(ExchangeEngine::Options{
        .rank = rank, .size = size, .generation = 7, .connect = [this, rank](int peer, auto deadline) {
          return connect(rank, peer, deadline);
        }}));
  }
}

int ExchangeWorld::take_socket(int rank, int peer) {
  return std::exchange(sockets_[static_cast<size_t>(rank)][static_cast<size_t>(peer)], -1);
}

std::unique_ptr<ExchangeLink> ExchangeWorld::connect(int rank, int peer,
                                                     ExchangeEngine::Clock::time_point deadline) {
  if (options_.transport == TestTransport::kEncrypted) return std::move(encrypted_.at({rank, peer}));
  const int socket = take_socket(rank, peer);
  const bool is_shared = options_.transport == TestTransport::kSharedMemory ||
                         (options_.transport == TestTransport::kMixed && rank / 2 == peer / 2);
  if (!is_shared) return std::make_unique<SocketLink>(socket);
  return rank > peer ? SharedMemoryLink::share(socket, SharedMemoryLink::allocate(options_.capacity))
                     : SharedMemoryLink::receive_from(socket, deadline);
}

void ExchangeWorld::close_connections(int rank) {
  engine(rank).interrupt();
  for (int peer = 0; peer < size(); ++peer) {
    if (const int socket = take_socket(rank, peer); socket >= 0) close(socket);
  }
}

std::vector<std::string> ExchangeWorld::on_each(
    const std::function<void(int rank, ExchangeEngine& engine)>& function) {
  std::vector<std::string> errors(engines_.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        function(rank, engine(rank));
      } catch (const ExchangeError& error) {
        errors[static_cast<size_t>(rank)] = std::to_string(error.peer) + ": " + error.what();
        close_connections(rank);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
        close_connections(rank);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

}  // namespace lockstep
