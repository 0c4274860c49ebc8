// A process of a job that only runs its heartbeat, for tests that kill and stop it.
//
//   heartbeat_peer RANK WORLD_SIZE TOKEN_IN_HEX INCARNATION LOST_AFTER_MS
//
// Writes "port P SESSION". Reads lines "peer RANK PORT SESSION NAME", then "start", and "stop" for an orderly
// exit. Writes "lost RANK|NAME|REASON" for the first lost peer.

#include <chrono>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/runtime/workers/heartbeat.h"

namespace lockstep {
namespace {

int run_heartbeat_peer(const std::vector<std::string>& arguments) {
  Heartbeat heartbeat({.rank = std::stoi(arguments.at(0)),
                       .world_size = std::stoi(arguments.at(1)),
                       .token = JobToken::from_hex(arguments.at(2)),
                       .incarnation = std::stoull(arguments.at(3)),
                       .lost_after = std::chrono::milliseconds(std::stoi(arguments.at(4)))},
                      [](const LostPeer& lost) {
                        const std::string line =
                            "lost " + std::to_string(lost.rank) + "|" + lost.name + "|" + lost.reason + "\n";
                        std::cout << line << std::flush;
                      });
  std::cout << "port " << heartbeat.port() << " " << heartbeat.session() << std::endl;

  std::vector<Peer> peers;
  for (std::string line; std::getline(std::cin, line) && line != "stop";) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "start") {
      heartbeat.start(peers);
    } else {
      Peer peer{.host = "127.0.0.1"};
      words >> peer.rank >> peer.port >> peer.session >> std::ws;
      std::getline(words, peer.name);
      peers.push_back(peer);
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int count, char** arguments) {
  return lockstep::run_heartbeat_peer({arguments + 1, arguments + count});
}
