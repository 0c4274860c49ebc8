#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <map>
#include <sstream>
#include <string>

namespace lockstep::testing {

/// Returns the answer to a GET request to this machine, with its header; empty if nobody listens.
inline std::string http_get(int port, const std::string& path) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n";
    EXPECT_EQ(::write(socket, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    std::array<char, 4096> buffer{};
    for (ssize_t count = 0; (count = ::read(socket, buffer.data(), buffer.size())) > 0;)
      answer.append(buffer.data(), static_cast<size_t>(count));
  }
  ::close(socket);
  return answer;
}

/// Returns the samples that a Prometheus server would scrape, by name and labels as written.
inline std::map<std::string, double> scrape(int port) {
  std::map<std::string, double> samples;
  std::istringstream lines(http_get(port, "/metrics"));
  bool is_body = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line == "\r") is_body = true;
    if (!is_body || line.empty() || line.front() == '#') continue;
    const auto space = line.rfind(' ');
    if (space != std::string::npos)
      samples[line.substr(0, space)] = std::strtod(line.c_str() + space, nullptr);
  }
  return samples;
}

}  // namespace lockstep::testing
