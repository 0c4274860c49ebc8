#include "lockstep/runtime/workers/worker_group.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/tests/support/replica_group.h"
#include "lockstep/tests/support/worker_threads.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors) EXPECT_EQ(message_of<std::exception>(error), "no error");
}

TEST(WorkerGroup, KnowsTheReplicasOfAllWorkers) {
  expect_no_errors(run_workers({2, 1, 3}, [](WorkerGroup& group) {
    const auto& layout = *group.layout();
    EXPECT_EQ(layout.num_replicas(), 6);
    EXPECT_EQ(layout.first_replica_of(2), 3);
    EXPECT_EQ(layout.worker_of(1), 0);
    EXPECT_EQ(layout.worker_of(2), 1);
    EXPECT_EQ(layout.worker_of(5), 2);
    EXPECT_THAT(group.name_of(1), HasSubstr("worker 1 ("));
  }));
}

TEST(WorkerGroup, GathersTextsOfAnyLength) {
  expect_no_errors(run_workers({1, 1, 1}, [](WorkerGroup& group) {
    const auto text_of = [](int worker) { return std::string(static_cast<size_t>(1000 * worker), 'x'); };
    const auto texts = group.gather(text_of(group.layout()->worker()));
    ASSERT_EQ(texts.size(), 3);
    for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(texts[static_cast<size_t>(worker)], text_of(worker));
  }));
}

TEST(WorkerGroup, GivesAllTheValuesOfWorkerZero) {
  expect_no_errors(run_workers({1, 1}, [](WorkerGroup& group) {
    const int worker = group.layout()->worker();
    const auto a = at::full({3, 2}, worker + 7, at::kFloat);
    const auto b = at::full({5}, worker == 0, at::kBool);
    group.broadcast_({a, at::zeros({0}), b});
    EXPECT_TRUE(a.eq(7).all().item<bool>());
    EXPECT_TRUE(b.all().item<bool>());
  }));
}

TEST(WorkerGroup, SumsOverTheWorkers) {
  expect_no_errors(run_workers({1, 1}, [](WorkerGroup& group) {
    const int worker = group.layout()->worker();
    EXPECT_EQ(group.sum(at::full({2}, worker + 1, at::kDouble))[1].item<double>(), 3);
    EXPECT_EQ(group.sum(at::full({}, 200 * worker, at::kShort)).item<int>(), 200);
  }));
}

// A second pool next to the replicas' would spin on their cores after each cast of a compression.
TEST(WorkerGroup, CarriesExchangesInThreadsWithoutAPool) {
  const IntraOpThreadsGuard several(3);  // the default of new threads
  expect_no_errors(run_workers({1, 1}, [](WorkerGroup& group) {
    int num_threads = 0;
    group.open_channel("test")->exchange("look", [&](c10d::Backend&) {
      num_threads = at::get_num_threads();
      return WorkerChannel::Works{};
    });
    EXPECT_EQ(num_threads, 1);
  }));
}

TEST(WorkerGroup, NamesBothWorkersAndTheLineThatDiffers) {
  const auto errors = run_workers({1, 1, 1}, [](WorkerGroup& group) {
    group.check_same("model", {"same", "lines"});
    group.check_same(
        "model", {"weight Float [3]", group.layout()->worker() == 2 ? "bias Float [4]" : "bias Float [3]"});
  });
  for (const auto& error : errors) {
    EXPECT_THAT(message_of<ClusterError>(error),
                AllOf(HasSubstr("[model]"), HasSubstr("worker 0 ("), HasSubstr("worker 2 ("),
                      HasSubstr("bias Float [3]"), HasSubstr("bias Float [4]")));
  }
}

TEST(WorkerGroup, RefusesWorkersOfDifferentFacts) {
  const auto errors = run_workers(
      {1, 1}, [](WorkerGroup&) {},
      [](JoinOptions& options) {
        options.facts = {{"timeout", "30 s"}, {"cluster", options.rank == 0 ? "a:1, b:2" : "a:1, c:2"}};
      });
  for (const auto& error : errors) {
    EXPECT_THAT(message_of<ClusterError>(error),
                AllOf(HasSubstr("same cluster"), HasSubstr("worker 0 ("), HasSubstr("worker 1 ("),
                      HasSubstr("a:1, b:2"), HasSubstr("a:1, c:2")));
  }
}

TEST(WorkerGroup, RefusesWorkersOfDifferentWorldSizes) {
  const auto errors = run_workers(
      {1, 1}, [](WorkerGroup&) {},
      [](JoinOptions& options) {
        if (options.rank == 1) options.size = 3;
      });
  for (const auto& error : errors) {
    EXPECT_THAT(message_of<ClusterError>(error),
                AllOf(HasSubstr("world size"), HasSubstr("worker 0 ("), HasSubstr("worker 1 ("),
                      HasSubstr("'2'"), HasSubstr("'3'")));
  }
}

TEST(WorkerGroup, RefusesASecondProcessOfTheSameRank) {
  const auto errors = run_workers(
      {1, 1, 1}, [](WorkerGroup&) {},
      [](JoinOptions& options) {
        options.join_timeout = std::chrono::seconds(3);
        if (options.rank == 2) options.rank = 1;
      });
  const bool second_is_refused =
      message_of<std::exception>(errors[1]).find("as worker 1 already") != std::string::npos;
  EXPECT_THAT(message_of<ClusterError>(errors[second_is_refused ? 1 : 2]), HasSubstr("as worker 1 already"));
  EXPECT_THAT(message_of<ClusterError>(errors[0]), HasSubstr("worker 2 of 3 did not come to 127.0.0.1:"));
}

TEST(WorkerGroup, DoesNotMeetWorkersOfAnotherToken) {
  const auto errors = run_workers(
      {1, 1}, [](WorkerGroup&) {},
      [](JoinOptions& options) {
        options.join_timeout = std::chrono::seconds(3);
        if (options.rank == 1) options.token = "another token";
      });
  EXPECT_THAT(message_of<ClusterError>(errors[0]),
              AllOf(HasSubstr("worker 1 of 2 did not come"),
                    HasSubstr("connections with another job token that were refused: 1")));
  EXPECT_THAT(message_of<ClusterError>(errors[1]),
              AllOf(HasSubstr("worker 1 came to 127.0.0.1:"),
                    HasSubstr("with another job token than worker 0"), HasSubstr("LOCKSTEP_JOB_TOKEN")));
}

TEST(WorkerGroup, DoesNotJoinWithoutAToken) {
  EXPECT_THROW(WorkerGroup::join({.rank = 0, .size = 2, .master_host = "127.0.0.1", .master_port = 1}),
               InvalidArgument);
}

TEST(WorkerGroup, MeetsAtAStoreThatTheLauncherServes) {
  TcpListener listener("127.0.0.1", 0);
  c10d::TCPStoreOptions launchers;
  launchers.port = static_cast<uint16_t>(listener.port());
  launchers.isServer = true;
  launchers.waitWorkers = false;
  launchers.masterListenFd = listener.release();
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", launchers);
  // The second start finds the first one's keys in the store and ignores them.
  for (int start = 0; start < 2; ++start) {
    expect_no_errors(run_workers(
        {1, 1}, [](WorkerGroup& group) { EXPECT_EQ(group.gather("here").size(), 2); },
        [&](JoinOptions& options) {
          options.master_port = launchers.port;
          options.is_master_served = true;
          options.restart_count = start;
        }));
  }
}

TEST(WorkerGroup, NamesThePortThatIsInUse) {
  TcpListener listening("127.0.0.1", 0);
  const int port = listening.port();
  const int descriptor = listening.release();
  ASSERT_EQ(::listen(descriptor, 1), 0);
  const JoinOptions options{
      .rank = 0, .size = 2, .master_host = "127.0.0.1", .master_port = port, .token = "a token"};
  try {
    WorkerGroup::join(options);
    FAIL() << "joined";
  } catch (const ClusterError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(c10::str("127.0.0.1:", port)), HasSubstr("in use"),
                                    HasSubstr("no other process may be worker 0")));
  }
  ::close(descriptor);
}

TEST(WorkerGroup, NamesTheCoordinatorThatIsAbsentAfterTheJoinTimeout) {
  int port = 0;
  {
    const TcpListener gone("127.0.0.1", 0);
    port = gone.port();
  }
  const JoinOptions options{.rank = 1,
                            .size = 2,
                            .master_host = "127.0.0.1",
                            .master_port = port,
                            .token = "a token",
                            .join_timeout = std::chrono::seconds(2)};
  const auto begin = Clock::now();
  try {
    WorkerGroup::join(options);
    FAIL() << "joined";
  } catch (const ClusterError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(c10::str("127.0.0.1:", port)), HasSubstr("worker 1")));
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(6));
}

TEST(WorkerGroup, NamesTheCoordinatorThatDoesNotAnswerAfterTheJoinTimeout) {
  TcpListener silent("127.0.0.1", 0);
  const int port = silent.port();
  const int descriptor = silent.release();
  ASSERT_EQ(::listen(descriptor, 16), 0);  // the system accepts connections, but nobody answers
  const JoinOptions options{.rank = 1,
                            .size = 2,
                            .master_host = "127.0.0.1",
                            .master_port = port,
                            .token = "a token",
                            .join_timeout = std::chrono::seconds(1)};
  const auto begin = Clock::now();
  try {
    WorkerGroup::join(options);
    FAIL() << "joined";
  } catch (const ClusterError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("worker 1 found no coordinator"),
                                    HasSubstr(c10::str("127.0.0.1:", port)), HasSubstr("does not answer")));
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  ::close(descriptor);
}

TEST(WorkerGroup, TellsAllWorkersWhoDidNotCome) {
  const auto errors = run_workers(
      {1, 1, 1}, [](WorkerGroup&) {},
      [](JoinOptions& options) {
        options.size = 4;
        // The others would wait longer.
        options.join_timeout = std::chrono::seconds(options.rank == 0 ? 2 : 60);
      });
  for (const auto& error : errors) {
    EXPECT_THAT(message_of<ClusterError>(error),
                AllOf(HasSubstr("worker 3 of 4 did not come"), HasSubstr("within 2 s")));
  }
}

TEST(WorkerGroup, TellsTheOthersThatAWorkerEndedItsPartEarly) {
  const auto errors = run_workers({1, 1}, [](WorkerGroup& group) {
    if (group.layout()->worker() == 1) throw std::runtime_error("bad data");
    group.gather("still there");
  });
  EXPECT_THAT(message_of<PeerLost>(errors[0]), HasSubstr("worker 1 ("));
  EXPECT_EQ(message_of<std::runtime_error>(errors[1]), "bad data");
}

}  // namespace
}  // namespace lockstep
