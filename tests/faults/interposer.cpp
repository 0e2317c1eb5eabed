// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Every MPI function that the library calls, in front of MPI's own: counted, and failing on demand.
// `covers_everything.sh` compares this list with what the library's object code refers to.

#include "faults/interposer.hpp"

#include <mpi.h>

// Nothing of the library, whose programs must all be compiled in one way. See mpi/persistent.hpp.
#if MPI_VERSION < 4 && defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <map>
#include <string_view>
#include <utility>
#include <vector>

namespace faults {
namespace {

struct plan {
  long calls = 0;
  long skip = 0;  // calls that still go through before one fails
  int error = MPI_SUCCESS;
  bool again = false;
};

std::map<std::string, plan, std::less<>>& plans() {
  static auto& instance = *new std::map<std::string, plan, std::less<>>;  // MPI_Finalize comes late
  return instance;
}
testsome_function& testsome() {
  static auto& instance = *new testsome_function;
  return instance;
}

std::function<void(void*)>& alteration() {
  static auto& instance = *new std::function<void(void*)>;
  return instance;
}

std::vector<std::string>& posting() {
  static auto& instance = *new std::vector<std::string>;
  return instance;
}

/// Adds a function to the list of those that return a request, which is then their last argument.
/// The type does not tell: requests may be ints.
bool note(std::string_view name, std::string_view arguments) {
  const bool posts = arguments.ends_with(", request)");
  if (posts && !name.ends_with("_c")) posting().emplace_back(name);
  return posts;
}

/// Notes a call. What it returns instead of MPI_SUCCESS is the call's result.
int enter(const char* name) {
  plan& mine = plans()[name];
  ++mine.calls;
  if (mine.error == MPI_SUCCESS || mine.skip-- > 0) return MPI_SUCCESS;
  return mine.again ? mine.error : std::exchange(mine.error, MPI_SUCCESS);
}

}  // namespace

void reset() {
  plans().clear();
  testsome() = nullptr;
  alteration() = nullptr;
}
void fail_next(const std::string& function, int error, long skip) {
  plan& mine = plans()[function];
  mine.skip = skip;
  mine.error = error;
  mine.again = false;
}
void fail_always(const std::string& function, int error) {
  fail_next(function, error);
  plans()[function].again = true;
}
bool failed_as_asked(const std::string& function) { return plans()[function].error == MPI_SUCCESS; }
long calls(const std::string& function) { return plans()[function].calls; }
std::vector<std::string> posting_functions() { return posting(); }
void replace_testsome(testsome_function function) { testsome() = std::move(function); }
void alter_sent(std::function<void(void*)> function) { alteration() = std::move(function); }

}  // namespace faults

// The parameters have the names of the standard's text, the arguments are the same in order.
#define FAULTS_COVER(name, parameters, arguments) \
  FAULTS_COVER_AS(MPI_##name, PMPI_##name, parameters, arguments)
#define FAULTS_COVER_AS(name, next, parameters, arguments) \
  extern "C" int name parameters {                         \
    const int error = faults::enter(#name);                \
    return error != MPI_SUCCESS ? error : next arguments;  \
  }                                                        \
  [[maybe_unused]] static const bool name##_posts = faults::note(#name, #arguments);

extern "C" int MPI_Testsome(int count, MPI_Request requests[], int* found, int indices[],
                            MPI_Status statuses[]) {
  const int error = faults::enter("MPI_Testsome");
  if (error != MPI_SUCCESS) return error;
  if (faults::testsome()) return faults::testsome()(count, requests, found, indices, statuses);
  return PMPI_Testsome(count, requests, found, indices, statuses);
}

extern "C" int MPI_Iallgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype,
                              void* recvbuf, int recvcount, MPI_Datatype recvtype, MPI_Comm comm,
                              MPI_Request* request) {
  if (const auto alter = std::exchange(faults::alteration(), nullptr)) {
    alter(const_cast<void*>(sendbuf));
  }
  const int error = faults::enter("MPI_Iallgather");
  if (error != MPI_SUCCESS) return error;
  return PMPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request);
}
[[maybe_unused]] static const bool Iallgather_posts = faults::note("MPI_Iallgather", ", request)");

// One request is asked for by MPI_Test: what stands in for MPI_Testsome answers this call too.
extern "C" int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  const int error = faults::enter("MPI_Test");
  if (error != MPI_SUCCESS) return error;
  if (!faults::testsome()) return PMPI_Test(request, flag, status);
  int found = 0;
  int index = 0;
  const int result = faults::testsome()(1, request, &found, &index, status);
  *flag = found == 1 ? 1 : 0;
  return result == MPI_ERR_IN_STATUS ? status->MPI_ERROR : result;
}

FAULTS_COVER(Abort, (MPI_Comm comm, int errorcode), (comm, errorcode))
FAULTS_COVER(Allgather,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
FAULTS_COVER(Allreduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm),
             (sendbuf, recvbuf, count, datatype, op, comm))
FAULTS_COVER(Alltoall,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm))
FAULTS_COVER(Barrier, (MPI_Comm comm), (comm))
FAULTS_COVER(Cancel, (MPI_Request * request), (request))
FAULTS_COVER(Bcast, (void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm),
             (buffer, count, type, root, comm))
FAULTS_COVER(Cart_coords, (MPI_Comm comm, int rank, int maxdims, int coords[]),
             (comm, rank, maxdims, coords))
FAULTS_COVER(Cart_create,
             (MPI_Comm old_comm, int ndims, const int dims[], const int periods[], int reorder,
              MPI_Comm* comm_cart),
             (old_comm, ndims, dims, periods, reorder, comm_cart))
FAULTS_COVER(Cart_get, (MPI_Comm comm, int maxdims, int dims[], int periods[], int coords[]),
             (comm, maxdims, dims, periods, coords))
FAULTS_COVER(Cart_rank, (MPI_Comm comm, const int coords[], int* rank), (comm, coords, rank))
FAULTS_COVER(Cart_shift, (MPI_Comm comm, int direction, int disp, int* rank_source, int* rank_dest),
             (comm, direction, disp, rank_source, rank_dest))
FAULTS_COVER(Cartdim_get, (MPI_Comm comm, int* ndims), (comm, ndims))
FAULTS_COVER(Comm_compare, (MPI_Comm first, MPI_Comm second, int* result), (first, second, result))
FAULTS_COVER(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm),
             (comm, group, tag, newcomm))
FAULTS_COVER(Comm_create_keyval,
             (MPI_Comm_copy_attr_function * comm_copy_attr_fn,
              MPI_Comm_delete_attr_function* comm_delete_attr_fn, int* comm_keyval,
              void* extra_state),
             (comm_copy_attr_fn, comm_delete_attr_fn, comm_keyval, extra_state))
FAULTS_COVER(Comm_dup, (MPI_Comm comm, MPI_Comm* newcomm), (comm, newcomm))
FAULTS_COVER(Comm_free, (MPI_Comm * comm), (comm))
FAULTS_COVER(Comm_free_keyval, (int* comm_keyval), (comm_keyval))
FAULTS_COVER(Comm_get_attr, (MPI_Comm comm, int comm_keyval, void* attribute_val, int* flag),
             (comm, comm_keyval, attribute_val, flag))
FAULTS_COVER(Comm_group, (MPI_Comm comm, MPI_Group* group), (comm, group))
FAULTS_COVER(Comm_rank, (MPI_Comm comm, int* rank), (comm, rank))
FAULTS_COVER(Comm_remote_size, (MPI_Comm comm, int* size), (comm, size))
FAULTS_COVER(Comm_set_attr, (MPI_Comm comm, int comm_keyval, void* attribute_val),
             (comm, comm_keyval, attribute_val))
FAULTS_COVER(Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler errhandler), (comm, errhandler))
FAULTS_COVER(Comm_size, (MPI_Comm comm, int* size), (comm, size))
FAULTS_COVER(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm* newcomm),
             (comm, color, key, newcomm))
FAULTS_COVER(Comm_split_type,
             (MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm* newcomm),
             (comm, split_type, key, info, newcomm))
FAULTS_COVER(Comm_test_inter, (MPI_Comm comm, int* flag), (comm, flag))
FAULTS_COVER(Dims_create, (int nnodes, int ndims, int dims[]), (nnodes, ndims, dims))
FAULTS_COVER(Dist_graph_create_adjacent,
             (MPI_Comm comm_old, int indegree, const int sources[], const int sourceweights[],
              int outdegree, const int destinations[], const int destweights[], MPI_Info info,
              int reorder, MPI_Comm* comm_dist_graph),
             (comm_old, indegree, sources, sourceweights, outdegree, destinations, destweights,
              info, reorder, comm_dist_graph))
FAULTS_COVER(Dist_graph_neighbors,
             (MPI_Comm comm, int maxindegree, int sources[], int sourceweights[], int maxoutdegree,
              int destinations[], int destweights[]),
             (comm, maxindegree, sources, sourceweights, maxoutdegree, destinations, destweights))
FAULTS_COVER(Dist_graph_neighbors_count,
             (MPI_Comm comm, int* inneighbors, int* outneighbors, int* weighted),
             (comm, inneighbors, outneighbors, weighted))
FAULTS_COVER(Error_class, (int errorcode, int* errorclass), (errorcode, errorclass))
FAULTS_COVER(Error_string, (int errorcode, char* string, int* resultlen),
             (errorcode, string, resultlen))
FAULTS_COVER(Finalize, (void), ())
FAULTS_COVER(Finalized, (int* flag), (flag))
FAULTS_COVER(Gather,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm))
FAULTS_COVER(Get_count, (const MPI_Status* status, MPI_Datatype datatype, int* count),
             (status, datatype, count))
FAULTS_COVER(Get_elements_x, (const MPI_Status* status, MPI_Datatype datatype, MPI_Count* count),
             (status, datatype, count))
FAULTS_COVER(Grequest_complete, (MPI_Request request), (request))
// It posts nothing that an operation waits for.
FAULTS_COVER(Grequest_start,
             (MPI_Grequest_query_function * query, MPI_Grequest_free_function* free,
              MPI_Grequest_cancel_function* cancel, void* state, MPI_Request* made),
             (query, free, cancel, state, made))
FAULTS_COVER(Graph_create,
             (MPI_Comm comm_old, int nnodes, const int index[], const int edges[], int reorder,
              MPI_Comm* comm_graph),
             (comm_old, nnodes, index, edges, reorder, comm_graph))
FAULTS_COVER(Graph_get, (MPI_Comm comm, int maxindex, int maxedges, int index[], int edges[]),
             (comm, maxindex, maxedges, index, edges))
FAULTS_COVER(Graphdims_get, (MPI_Comm comm, int* nnodes, int* nedges), (comm, nnodes, nedges))
FAULTS_COVER(Graph_neighbors, (MPI_Comm comm, int rank, int maxneighbors, int neighbors[]),
             (comm, rank, maxneighbors, neighbors))
FAULTS_COVER(Graph_neighbors_count, (MPI_Comm comm, int rank, int* nneighbors),
             (comm, rank, nneighbors))
FAULTS_COVER(Group_compare, (MPI_Group group1, MPI_Group group2, int* result),
             (group1, group2, result))
FAULTS_COVER(Group_difference, (MPI_Group group1, MPI_Group group2, MPI_Group* newgroup),
             (group1, group2, newgroup))
FAULTS_COVER(Group_excl, (MPI_Group group, int n, const int ranks[], MPI_Group* newgroup),
             (group, n, ranks, newgroup))
FAULTS_COVER(Group_free, (MPI_Group * group), (group))
FAULTS_COVER(Group_incl, (MPI_Group group, int n, const int ranks[], MPI_Group* newgroup),
             (group, n, ranks, newgroup))
FAULTS_COVER(Group_intersection, (MPI_Group group1, MPI_Group group2, MPI_Group* newgroup),
             (group1, group2, newgroup))
FAULTS_COVER(Group_rank, (MPI_Group group, int* rank), (group, rank))
FAULTS_COVER(Group_size, (MPI_Group group, int* size), (group, size))
FAULTS_COVER(Group_translate_ranks,
             (MPI_Group group1, int n, const int ranks1[], MPI_Group group2, int ranks2[]),
             (group1, n, ranks1, group2, ranks2))
FAULTS_COVER(Group_union, (MPI_Group group1, MPI_Group group2, MPI_Group* newgroup),
             (group1, group2, newgroup))
FAULTS_COVER(Iallgatherv,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              const int recvcounts[], const int displs[], MPI_Datatype recvtype, MPI_Comm comm,
              MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request))
FAULTS_COVER(Iallreduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, count, datatype, op, comm, request))
FAULTS_COVER(Ialltoall,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request))
FAULTS_COVER(Ialltoallv,
             (const void* sendbuf, const int sendcounts[], const int sdispls[],
              MPI_Datatype sendtype, void* recvbuf, const int recvcounts[], const int rdispls[],
              MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm,
              request))
FAULTS_COVER(Ibarrier, (MPI_Comm comm, MPI_Request* request), (comm, request))
FAULTS_COVER(Ibcast,
             (void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
              MPI_Request* request),
             (buffer, count, datatype, root, comm, request))
FAULTS_COVER(Iexscan,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, count, datatype, op, comm, request))
FAULTS_COVER(Igather,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request))
FAULTS_COVER(Igatherv,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm,
              request))
FAULTS_COVER(Improbe,
             (int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
              MPI_Status* status),
             (source, tag, comm, flag, message, status))
FAULTS_COVER(Imrecv,
             (void* buf, int count, MPI_Datatype type, MPI_Message* message, MPI_Request* request),
             (buf, count, type, message, request))
FAULTS_COVER(Ineighbor_allgather,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request))
FAULTS_COVER(Ineighbor_allgatherv,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              const int recvcounts[], const int displs[], MPI_Datatype recvtype, MPI_Comm comm,
              MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request))
FAULTS_COVER(Ineighbor_alltoall,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request))
FAULTS_COVER(Ineighbor_alltoallv,
             (const void* sendbuf, const int sendcounts[], const int sdispls[],
              MPI_Datatype sendtype, void* recvbuf, const int recvcounts[], const int rdispls[],
              MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm,
              request))
FAULTS_COVER(Info_create, (MPI_Info * info), (info))
FAULTS_COVER(Info_free, (MPI_Info * info), (info))
FAULTS_COVER(Info_set, (MPI_Info info, const char* key, const char* value), (info, key, value))
FAULTS_COVER(Init, (int* argc, char*** argv), (argc, argv))
FAULTS_COVER(Init_thread, (int* argc, char*** argv, int required, int* provided),
             (argc, argv, required, provided))
FAULTS_COVER(Initialized, (int* flag), (flag))
FAULTS_COVER(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm* newcomm), (comm, high, newcomm))
FAULTS_COVER(Iprobe, (int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status),
             (source, tag, comm, flag, status))
FAULTS_COVER(Irecv,
             (void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request* request),
             (buf, count, datatype, source, tag, comm, request))
FAULTS_COVER(Ireduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
              int root, MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, count, datatype, op, root, comm, request))
FAULTS_COVER(Ireduce_scatter,
             (const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype,
              MPI_Op op, MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, recvcounts, datatype, op, comm, request))
FAULTS_COVER(Ireduce_scatter_block,
             (const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, recvcount, datatype, op, comm, request))
FAULTS_COVER(Irsend,
             (const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
              MPI_Request* request),
             (buf, count, datatype, dest, tag, comm, request))
FAULTS_COVER(Is_thread_main, (int* flag), (flag))
FAULTS_COVER(Iscan,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, count, datatype, op, comm, request))
FAULTS_COVER(Iscatter,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request))
FAULTS_COVER(Iscatterv,
             (const void* sendbuf, const int sendcounts[], const int displs[],
              MPI_Datatype sendtype, void* recvbuf, int recvcount, MPI_Datatype recvtype, int root,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm,
              request))
FAULTS_COVER(Isend,
             (const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
              MPI_Request* request),
             (buf, count, datatype, dest, tag, comm, request))
FAULTS_COVER(Issend,
             (const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
              MPI_Request* request),
             (buf, count, datatype, dest, tag, comm, request))
FAULTS_COVER(Op_create, (MPI_User_function * function, int commute, MPI_Op* op),
             (function, commute, op))
FAULTS_COVER(Op_free, (MPI_Op * op), (op))
FAULTS_COVER(Query_thread, (int* provided), (provided))
FAULTS_COVER(Reduce_scatter_block,
             (const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm),
             (sendbuf, recvbuf, recvcount, datatype, op, comm))
FAULTS_COVER(Request_free, (MPI_Request * request), (request))
FAULTS_COVER(Request_get_status, (MPI_Request request, int* flag, MPI_Status* status),
             (request, flag, status))
FAULTS_COVER(Rsend,
             (const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm),
             (buf, count, datatype, dest, tag, comm))
FAULTS_COVER(Scatter,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm))
FAULTS_COVER(Send,
             (const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm),
             (buf, count, datatype, dest, tag, comm))
// They post nothing yet.
FAULTS_COVER(Recv_init,
             (void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request* made),
             (buf, count, datatype, source, tag, comm, made))
FAULTS_COVER(Send_init,
             (const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
              MPI_Request* made),
             (buf, count, datatype, dest, tag, comm, made))
// Open MPI before it had those of MPI 4.
#if MPI_VERSION >= 4
#define FAULTS_COVER_PERSISTENT(name, parameters, arguments) \
  FAULTS_COVER(name, parameters, arguments)
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
#define FAULTS_COVER_PERSISTENT(name, parameters, arguments) \
  FAULTS_COVER_AS(MPIX_##name, PMPIX_##name, parameters, arguments)
#endif
#ifdef FAULTS_COVER_PERSISTENT
FAULTS_COVER_PERSISTENT(Allgather_init,
                        (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                         int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                         MPI_Request* made),
                        (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info,
                         made))
FAULTS_COVER_PERSISTENT(Allreduce_init,
                        (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
                         MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* made),
                        (sendbuf, recvbuf, count, datatype, op, comm, info, made))
FAULTS_COVER_PERSISTENT(Alltoall_init,
                        (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                         int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                         MPI_Request* made),
                        (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info,
                         made))
FAULTS_COVER_PERSISTENT(Barrier_init, (MPI_Comm comm, MPI_Info info, MPI_Request* made),
                        (comm, info, made))
FAULTS_COVER_PERSISTENT(Bcast_init,
                        (void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
                         MPI_Info info, MPI_Request* made),
                        (buffer, count, datatype, root, comm, info, made))
FAULTS_COVER_PERSISTENT(Exscan_init,
                        (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
                         MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* made),
                        (sendbuf, recvbuf, count, datatype, op, comm, info, made))
FAULTS_COVER_PERSISTENT(Gather_init,
                        (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                         int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                         MPI_Info info, MPI_Request* made),
                        (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm,
                         info, made))
FAULTS_COVER_PERSISTENT(Neighbor_allgather_init,
                        (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                         int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                         MPI_Request* made),
                        (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info,
                         made))
FAULTS_COVER_PERSISTENT(Neighbor_alltoall_init,
                        (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                         int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                         MPI_Request* made),
                        (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, info,
                         made))
FAULTS_COVER_PERSISTENT(Reduce_init,
                        (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
                         MPI_Op op, int root, MPI_Comm comm, MPI_Info info, MPI_Request* made),
                        (sendbuf, recvbuf, count, datatype, op, root, comm, info, made))
FAULTS_COVER_PERSISTENT(Reduce_scatter_block_init,
                        (const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype,
                         MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* made),
                        (sendbuf, recvbuf, recvcount, datatype, op, comm, info, made))
FAULTS_COVER_PERSISTENT(Scan_init,
                        (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
                         MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* made),
                        (sendbuf, recvbuf, count, datatype, op, comm, info, made))
FAULTS_COVER_PERSISTENT(Scatter_init,
                        (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                         int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                         MPI_Info info, MPI_Request* made),
                        (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm,
                         info, made))
#endif
FAULTS_COVER(Start, (MPI_Request * request), (request))
FAULTS_COVER(Ssend,
             (const void* buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm),
             (buf, count, datatype, dest, tag, comm))
FAULTS_COVER(Test_cancelled, (const MPI_Status* status, int* flag), (status, flag))
FAULTS_COVER(Testany,
             (int count, MPI_Request requests[], int* index, int* flag, MPI_Status* status),
             (count, requests, index, flag, status))
FAULTS_COVER(Topo_test, (MPI_Comm comm, int* status), (comm, status))
FAULTS_COVER(Type_commit, (MPI_Datatype * type), (type))
FAULTS_COVER(Type_contiguous, (int count, MPI_Datatype oldtype, MPI_Datatype* newtype),
             (count, oldtype, newtype))
FAULTS_COVER(Type_create_hvector,
             (int count, int blocklength, MPI_Aint stride, MPI_Datatype oldtype,
              MPI_Datatype* newtype),
             (count, blocklength, stride, oldtype, newtype))
FAULTS_COVER(Type_create_struct,
             (int count, const int array_of_block_lengths[],
              const MPI_Aint array_of_displacements[], const MPI_Datatype array_of_types[],
              MPI_Datatype* newtype),
             (count, array_of_block_lengths, array_of_displacements, array_of_types, newtype))
FAULTS_COVER(Type_free, (MPI_Datatype * type), (type))
FAULTS_COVER(Type_get_extent, (MPI_Datatype type, MPI_Aint* lb, MPI_Aint* extent),
             (type, lb, extent))
FAULTS_COVER(Type_get_true_extent, (MPI_Datatype type, MPI_Aint* lb, MPI_Aint* extent),
             (type, lb, extent))
FAULTS_COVER(Type_size, (MPI_Datatype type, int* size), (type, size))
FAULTS_COVER(Recv,
             (void* buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Status* status),
             (buf, count, datatype, source, tag, comm, status))
FAULTS_COVER(Reduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
              int root, MPI_Comm comm),
             (sendbuf, recvbuf, count, datatype, op, root, comm))
FAULTS_COVER(Reduce_local,
             (const void* inbuf, void* inoutbuf, int count, MPI_Datatype datatype, MPI_Op op),
             (inbuf, inoutbuf, count, datatype, op))
FAULTS_COVER(Win_allocate_shared,
             (MPI_Aint size, int disp_unit, MPI_Info info, MPI_Comm comm, void* baseptr,
              MPI_Win* win),
             (size, disp_unit, info, comm, baseptr, win))
FAULTS_COVER(Win_free, (MPI_Win * win), (win))
FAULTS_COVER(Win_lock_all, (int assert, MPI_Win win), (assert, win))
FAULTS_COVER(Win_set_errhandler, (MPI_Win win, MPI_Errhandler errhandler), (win, errhandler))
FAULTS_COVER(Win_shared_query,
             (MPI_Win win, int rank, MPI_Aint* size, int* disp_unit, void* baseptr),
             (win, rank, size, disp_unit, baseptr))
FAULTS_COVER(Win_sync, (MPI_Win win), (win))
FAULTS_COVER(Win_unlock_all, (MPI_Win win), (win))

#if MPI_VERSION >= 4
FAULTS_COVER(Iallgather_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request))
FAULTS_COVER(Iallgatherv_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request))
FAULTS_COVER(Iallreduce_c,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, count, datatype, op, comm, request))
FAULTS_COVER(Ialltoall_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request))
FAULTS_COVER(Ialltoallv_c,
             (const void* sendbuf, const MPI_Count sendcounts[], const MPI_Aint sdispls[],
              MPI_Datatype sendtype, void* recvbuf, const MPI_Count recvcounts[],
              const MPI_Aint rdispls[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm,
              request))
FAULTS_COVER(Ibcast_c,
             (void* buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
              MPI_Request* request),
             (buffer, count, datatype, root, comm, request))
FAULTS_COVER(Iexscan_c,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, count, datatype, op, comm, request))
FAULTS_COVER(Igather_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
              MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request))
FAULTS_COVER(Igatherv_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype,
              int root, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm,
              request))
FAULTS_COVER(Imrecv_c,
             (void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Message* message,
              MPI_Request* request),
             (buf, count, datatype, message, request))
FAULTS_COVER(Ineighbor_allgather_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request))
FAULTS_COVER(Ineighbor_allgatherv_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              const MPI_Count recvcounts[], const MPI_Aint displs[], MPI_Datatype recvtype,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request))
FAULTS_COVER(Ineighbor_alltoall_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request))
FAULTS_COVER(Ineighbor_alltoallv_c,
             (const void* sendbuf, const MPI_Count sendcounts[], const MPI_Aint sdispls[],
              MPI_Datatype sendtype, void* recvbuf, const MPI_Count recvcounts[],
              const MPI_Aint rdispls[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm,
              request))
FAULTS_COVER(Irecv_c,
             (void* buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
              MPI_Request* request),
             (buf, count, datatype, source, tag, comm, request))
FAULTS_COVER(Ireduce_c,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
              int root, MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, count, datatype, op, root, comm, request))
FAULTS_COVER(Ireduce_scatter_block_c,
             (const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype,
              MPI_Op op, MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, recvcount, datatype, op, comm, request))
FAULTS_COVER(Ireduce_scatter_c,
             (const void* sendbuf, void* recvbuf, const MPI_Count recvcounts[],
              MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, recvcounts, datatype, op, comm, request))
FAULTS_COVER(Irsend_c,
             (const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
              MPI_Comm comm, MPI_Request* request),
             (buf, count, datatype, dest, tag, comm, request))
FAULTS_COVER(Iscan_c,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm, MPI_Request* request),
             (sendbuf, recvbuf, count, datatype, op, comm, request))
FAULTS_COVER(Iscatter_c,
             (const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void* recvbuf,
              MPI_Count recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
              MPI_Request* request),
             (sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request))
FAULTS_COVER(Iscatterv_c,
             (const void* sendbuf, const MPI_Count sendcounts[], const MPI_Aint displs[],
              MPI_Datatype sendtype, void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype,
              int root, MPI_Comm comm, MPI_Request* request),
             (sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm,
              request))
FAULTS_COVER(Isend_c,
             (const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
              MPI_Comm comm, MPI_Request* request),
             (buf, count, datatype, dest, tag, comm, request))
FAULTS_COVER(Issend_c,
             (const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
              MPI_Comm comm, MPI_Request* request),
             (buf, count, datatype, dest, tag, comm, request))
FAULTS_COVER(Op_create_c, (MPI_User_function_c * user_fn, int commute, MPI_Op* op),
             (user_fn, commute, op))
FAULTS_COVER(Type_create_hvector_c,
             (MPI_Count count, MPI_Count blocklength, MPI_Count stride, MPI_Datatype oldtype,
              MPI_Datatype* newtype),
             (count, blocklength, stride, oldtype, newtype))
#endif
