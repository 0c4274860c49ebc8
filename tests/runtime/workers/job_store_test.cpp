#include "lockstep/runtime/workers/job_store.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/store/store_server.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

class JobStoreTest : public testing::Test {
 protected:
  c10::intrusive_ptr<JobStore> store(std::chrono::milliseconds timeout = seconds(60)) const {
    return c10::make_intrusive<JobStore>(client_, std::vector<std::string>{"failures"}, timeout);
  }

  const JobToken token_ = JobToken::random();
  std::optional<StoreServer> server_{std::in_place, TcpListener("127.0.0.1", 0),
                                     StoreServerOptions{.token = token_}};
  const std::shared_ptr<StoreClient> client_ = std::make_shared<StoreClient>(
      StoreClientOptions{.host = "127.0.0.1", .port = server_->port(), .token = token_, .name = "worker 0"});
};

/// Makes every call that LibTorch's backends make, and returns all results.
std::string results_of_all_calls(c10d::Store& store) {
  std::ostringstream results;
  const auto note = [&](const std::vector<uint8_t>& value) {
    results << std::string(value.begin(), value.end()) << "|";
  };
  store.set("a", bytes("1"));
  note(store.get("a"));
  note(store.compareSet("absent", bytes("x"), bytes("y")));
  note(store.compareSet("new", {}, bytes("first")));
  note(store.compareSet("new", bytes("other"), bytes("second")));
  note(store.compareSet("new", bytes("first"), bytes("second")));
  results << store.add("count", 5) << "|" << store.add("count", -2) << "|";
  note(store.get("count"));
  store.append("list", bytes("x"));
  store.append("list", bytes("y"));
  note(store.get("list"));
  store.multiSet({"m", "n"}, {bytes("3"), bytes("4")});
  for (const auto& value : store.multiGet({"n", "m"})) note(value);
  results << store.check({"a", "new"}) << store.check({"a", "missing"}) << "|";
  results << store.deleteKey("a") << store.deleteKey("a") << store.check({"a"}) << "|";
  store.wait({"m", "n"}, seconds(1));
  return results.str();
}

TEST_F(JobStoreTest, GivesTheResultsOfLibTorchsOwnStores) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto tcp = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  EXPECT_EQ(results_of_all_calls(*store()), results_of_all_calls(*tcp));
}

TEST_F(JobStoreTest, IsSharedByItsClones) {
  const auto clone = store()->clone();
  clone->set("a", bytes("1"));
  EXPECT_EQ(store()->get("a"), bytes("1"));
  EXPECT_EQ(store()->getNumKeys(), 1);
}

TEST_F(JobStoreTest, ThrowsAtTheTimeout) {
  EXPECT_THROW(store(milliseconds(20))->get("absent"), c10::DistStoreError);
  EXPECT_THROW(store()->wait({"absent"}, milliseconds(20)), c10::DistStoreError);
}

TEST_F(JobStoreTest, ThrowsOnceAWorkerHasFailed) {
  std::thread fails([&] { client_->append("failures", "worker 1: no memory"); });
  EXPECT_THROW(store()->get("absent"), CollectiveAborted);
  fails.join();
  EXPECT_THROW(store()->wait({"absent"}), CollectiveAborted);
  store()->set("a", bytes("1"));  // what is there can still be read
  EXPECT_EQ(store()->get("a"), bytes("1"));
}

TEST_F(JobStoreTest, ThrowsOnceItIsInterrupted) {
  std::thread interrupts([&] { client_->interrupt(); });
  EXPECT_THROW(store()->get("absent"), CollectiveAborted);
  interrupts.join();
  store()->set("a", bytes("1"));  // other calls go on
  EXPECT_EQ(store()->get("a"), bytes("1"));
}

TEST_F(JobStoreTest, SaysThatTheConnectionIsLost) {
  server_.reset();
  try {
    store()->get("a");
    FAIL() << "no error";
  } catch (const c10::DistNetworkError& error) {
    EXPECT_NE(std::string(error.what()).find("the connection to worker 0 is lost"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
