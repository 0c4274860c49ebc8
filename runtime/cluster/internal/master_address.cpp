#include "lockstep/runtime/cluster/internal/master_address.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/files/internal/regular_file.h"
#include "lockstep/runtime/base/net/tcp_listener.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kPoll{10};

/// Readers see the whole address or no file.
void publish(const std::string& file, const HostPort& address) {
  const std::string partial = file + ".partial";
  {
    std::ofstream out(partial);
    out << address.str() << std::flush;
    if (!out) throw ClusterError("[join] worker 0 could not write its address to " + partial);
  }
  std::error_code error;
  std::filesystem::rename(partial, file, error);
  if (error)
    throw ClusterError("[join] worker 0 could not write its address to " + file + ": " + error.message());
}

/// Returns the content of the file; an empty text if worker 0 has not written it yet.
std::string published_text(const std::string& file) {
  constexpr size_t kLongest = 4096;
  try {
    return RegularFile(file).read_start(kLongest);
  } catch (const NotARegularFile& other) {
    throw ClusterError(std::string("[join] ") + other.what());
  } catch (const std::system_error&) {
    return "";
  }
}

HostPort read_published(const std::string& file, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    std::istringstream in(published_text(file));
    std::string text;
    if (in >> text) return parse_host_port(text);
    if (std::chrono::steady_clock::now() >= deadline) {
      throw ClusterError("[join] worker 0 did not write its address to " + file + " within " +
                         std::to_string(timeout.count()) + " ms");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

MasterAddress open_master(const ClusterResolver& resolver, const ClusterOptions& options) {
  if (const auto master = resolver.master())
    return {*master, resolver.rank() == 0 ? options.listening_socket : std::nullopt};
  const auto file = resolver.rendezvous_file();
  if (!file) {
    throw InvalidArgument("[cluster] expected " + resolver.source() +
                          " to say where worker 0 listens, but got nothing");
  }
  if (resolver.rank() != 0) return {read_published(*file, options.join_timeout), std::nullopt};
  TcpListener listener("127.0.0.1", 0);
  const HostPort address{"127.0.0.1", listener.port()};
  publish(*file, address);
  return {address, listener.release()};
}

}  // namespace lockstep
