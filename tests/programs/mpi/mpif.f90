! Ranks 0 and 1, by mpif.h: a message each way (10 doubles, tag 1; 20 integers back, tag 2) by every kind of call whose
! sentinels differ from C's; then an allreduce in place (3 doubles), a gather in place at rank 1, a Cartesian grid.
program fortran
    implicit none
    include 'mpif.h'
    integer :: ierror, rank, requests(2), index, num
    integer :: status(MPI_STATUS_SIZE), grid
    integer, dimension(20) :: b
    double precision, dimension(10) :: a
    integer :: c(80)
    logical :: flag
    call MPI_Init(ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, num, ierror)
    a = rank
    b = rank
    if (rank == 0) then
        call MPI_Send(a, 10, MPI_DOUBLE_PRECISION, 1, 1, MPI_COMM_WORLD, ierror)
        call MPI_Recv(b, 20, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
        call MPI_Isend(a, 10, MPI_DOUBLE_PRECISION, 1, 1, MPI_COMM_WORLD, requests(1), ierror)
        call MPI_Irecv(b, 20, MPI_INTEGER, 1, 2, MPI_COMM_WORLD, requests(2), ierror)
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
    else if (rank == 1) then
        call MPI_Recv(a, 10, MPI_DOUBLE_PRECISION, 0, 1, MPI_COMM_WORLD, status, ierror)
        call MPI_Send(b, 20, MPI_INTEGER, 0, 2, MPI_COMM_WORLD, ierror)
        call MPI_Irecv(a, 10, MPI_DOUBLE_PRECISION, 0, 1, MPI_COMM_WORLD, requests(1), ierror)
        flag = .false.
        do while (.not. flag)
            call MPI_Testany(1, requests, index, flag, MPI_STATUS_IGNORE, ierror)
        end do
        call MPI_Isend(b, 20, MPI_INTEGER, 0, 2, MPI_COMM_WORLD, requests(1), ierror)
        call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
    end if
    call MPI_Allreduce(MPI_IN_PLACE, a, 3, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    if (rank == 1) then
        call MPI_Gather(MPI_IN_PLACE, 0, MPI_INTEGER, c, 5, MPI_INTEGER, 1, MPI_COMM_WORLD, ierror)
    else
        call MPI_Gather(b, 5, MPI_INTEGER, c, 5, MPI_INTEGER, 1, MPI_COMM_WORLD, ierror)
    end if
    call MPI_Cart_create(MPI_COMM_WORLD, 1, (/num/), (/.true./), .false., grid, ierror)
    call MPI_Barrier(grid, ierror)
    call MPI_Finalize(ierror)
end program
